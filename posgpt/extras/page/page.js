"use strict";
// The page itself. Whatever a model, a corpus or a visitor has written is put in as text, never as HTML.

const settings = JSON.parse(find("settings").textContent), models = settings.models;
// The layer and the head whose attention is shown, per model.
const shown = models.map((model) => ({ layer: model.layers - 1, head: "" }));
let asked = null, asking = new AbortController();

function find(id) {
  return document.getElementById(id);
}

/** Make an element with properties and children; texts among these stay texts. */
function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

const formatShare = (share) => `${(100 * share).toFixed(1)} %`;

async function ask() {
  const line = find("title").value.trim();
  if (!line) return;
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  say("Thinking …");
  try {
    await loaded;
    // What the status says is drawn before the work begins.
    await new Promise((resume) => setTimeout(resume, 20));
    const start = performance.now();
    const { title, question } = readQuestion(line, settings.relations, settings.relations[find("relation").value], isKnown);
    const answered = await askModels(title, question, signal);
    signal.throwIfAborted();
    asked = answered;
    show();
    say(`Answered in ${((performance.now() - start) / 1000).toFixed(1)} s.`);
  } catch (error) {
    if (signal.aborted) return;
    asked = null;
    show();
    say(error.message);
  }
}

function say(text) {
  find("status").textContent = text;
}

function show() {
  find("question").hidden = !asked;
  find("question").textContent = asked?.question ?? "";
  find("answers").replaceChildren(...(asked?.answers ?? []).map((answer, number) => showAnswer(answer, number)));
  find("evidence").replaceChildren(...(asked?.documents ? showEvidence() : []));
}

function showAnswer({ best, attention, unknown }, number) {
  const model = models[number], sure = best[0].probability >= find("abstain").value;
  const said = best[0].text || "(nothing)";
  const card = make("section", { className: "card" },
    make("p", { className: "model", textContent: `${model.name} (${model.positions})` }),
    make("p", { className: "answer", textContent: sure ? said : "I don’t know" }));
  if (!sure) card.append(make("p", { className: "note", textContent: `Not sure enough of “${said}”.` }));
  card.append(make("ol", { className: "best" }, ...best.map(({ text, probability }, index) => {
    const bar = make("span", { className: sure && index === 0 ? "bar sure" : "bar" });
    bar.style.width = `${100 * probability}%`;
    return make("li", {},
      make("span", { className: "text", textContent: text || "(nothing)", title: text }),
      make("span", { className: "scale" }, bar),
      make("span", { className: "share", textContent: formatShare(probability) }));
  })));
  if (unknown.length) {
    const note = `Characters that the model does not know and reads as ${settings.unknown}: ${unknown.join(" ")}`;
    card.append(make("p", { className: "note", textContent: note }));
  }
  // A model with a bottleneck attends to no characters.
  if (attention.length) card.append(showAttention(attention, number));
  return card;
}

/** What the last ⁇ attends to: each character as dark as its weight, beside the largest of them. */
function showAttention(attention, number) {
  const model = models[number], choice = shown[number];
  const characters = [...Array.from(asked.question), settings.mask];
  const row = make("p", { className: "attention" }), note = make("p", { className: "note" });
  const draw = () => {
    const heads = attention[choice.layer];
    const weights = choice.head === ""
      ? characters.map((_, index) => heads.reduce((sum, head) => sum + head[index], 0) / heads.length)
      : heads[choice.head];
    const largest = Math.max(...weights);
    row.replaceChildren(...characters.map((character, index) => {
      const cell = make("span", { textContent: character, title: `${character} ${formatShare(weights[index])}` });
      cell.style.setProperty("--weight", `${(100 * weights[index] / largest).toFixed(0)}%`);
      return cell;
    }));
    const most = characters[weights.indexOf(largest)];
    note.textContent = `Most on ${most === " " ? "a space" : `“${most}”`}: ${formatShare(largest)}.`;
  };
  const choose = (name, options) => {
    const select = make("select", {}, ...options.map(([value, label]) => make("option", { value, textContent: label })));
    select.value = choice[name];
    select.addEventListener("change", () => {
      choice[name] = select.value;
      draw();
    });
    return select;
  };
  const countFrom1 = (size) => Array.from({ length: size }, (_, index) => [index, `${index + 1}`]);
  draw();
  return make("div", {},
    make("div", { className: "choose" },
      make("span", { textContent: `What the last ${settings.mask} attends to` }),
      make("label", {}, "layer ", choose("layer", countFrom1(model.layers))),
      make("label", {}, "head ", choose("head", [["", "mean of all"], ...countFrom1(model.heads)]))),
    row, note);
}

/** What the corpus says about the title. */
function showEvidence() {
  const { title, answers, documents } = asked, given = answers.map(({ best }) => best[0].text);
  if (!documents.length) {
    return [make("p", { className: "note", textContent: "The corpus has no document of this name, so any answer is made up." })];
  }
  return documents.map(([where, text]) => make("p", { className: "document" },
    make("span", { className: "line", textContent: `${where.replace(/^[lr](?=(?:ine|ow) )/, (first) => first.toUpperCase())} of the corpus: ` }),
    ...markEvidence(text, title, given).map(({ part, kind }) =>
      (kind ? make("mark", { className: kind, textContent: part }) : part))));
}

function describeChoices() {
  const { form } = settings.relations[find("relation").value] ?? {};
  find("title-label").textContent = form ? "NAME" : "Question";
  find("abstain-name").textContent = formatShare(find("abstain").value);
}

function begin() {
  find("relation").append(
    ...settings.relations.map(({ form }, value) => make("option", { value, textContent: form })),
    make("option", { value: "typed", textContent: "As I type it" }));
  find("abstain").value = settings.abstainBelow;
  find("propose").hidden = !settings.titles.length;
  describeChoices();
  find("form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  find("form").addEventListener("input", describeChoices);
  find("relation").addEventListener("change", ask);
  find("abstain").addEventListener("input", show);
  find("propose").addEventListener("click", () => {
    find("title").value = settings.titles[Math.floor(Math.random() * settings.titles.length)];
    ask();
  });
}

begin();
const loaded = load();
loaded.then(
  () => find("status").textContent === "Loading …" && say("Ready."),
  (error) => say(`This browser could not load the model: ${error.message}`));
