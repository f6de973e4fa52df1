"use strict";
// What a model answers, and what it looks at. Nothing here touches the page.

const BEST = 5;

/** A model of the page: its settings, and functions for its characters. */
class Model {
  constructor(settings, mask, unknown) {
    Object.assign(this, settings);
    this.ids = new Map(this.vocabulary.map((character, id) => [character, id]));
    this.mask = mask;
    this.end = this.ids.get(mask);
    this.unknownId = this.ids.get(unknown);
  }

  encode(text) {
    return Array.from(text, (character) => this.ids.get(character) ?? this.unknownId);
  }

  decode(ids) {
    return ids.map((id) => this.vocabulary[id]).join("").split(this.mask)[0];
  }

  /** The characters of a text that the model reads as □. */
  listUnknown(text) {
    return [...new Set(Array.from(text).filter((character) => !this.ids.has(character)))].sort();
  }
}

/**
 * A row of tokens as the ONNX model reads it: the prompt once, then the beginnings of answers as a tree.
 * A token sees itself and what leads to it. Returns the inputs, and where each beginning ends in the row.
 */
function buildRow(prompt, beginnings) {
  const ids = [...prompt], parents = prompt.map((_, index) => index - 1), places = prompt.map((_, index) => index);
  const children = new Map();
  const ends = beginnings.map((beginning) => {
    let end = prompt.length - 1;
    for (const id of beginning) {
      const key = `${end} ${id}`;
      if (!children.has(key)) {
        children.set(key, ids.length);
        ids.push(id);
        parents.push(end);
        places.push(places[end] + 1);
      }
      end = children.get(key);
    }
    return end;
  });
  const length = ids.length, mask = new Uint8Array(length * length);
  for (let row = 0; row < length; row++) {
    if (row > 0) mask.copyWithin(row * length, parents[row] * length, (parents[row] + 1) * length);
    mask[row * length + row] = 1;
  }
  const inputs = {
    input_ids: new ort.Tensor("int64", BigInt64Array.from(ids, BigInt), [1, length]),
    position_ids: new ort.Tensor("int64", BigInt64Array.from(places, BigInt), [1, length]),
    attention_mask: new ort.Tensor("bool", mask, [1, 1, length, length]),
  };
  return { inputs, ends };
}

/** The logarithms of the probabilities that logits stand for. */
function logSoftmax(logits) {
  const highest = logits.reduce((a, b) => Math.max(a, b));
  const total = highest + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - highest), 0));
  return Array.from(logits, (logit) => logit - total);
}

const byScore = (one, other) => other.score - one.score;

/**
 * The likeliest answers and the probability of each, as `posgpt demo` finds them: by transformers' beam search with twice as
 * many beams, without a length penalty, until no beam can still beat the answers that are found.
 */
async function findBestAnswers(model, session, question, signal) {
  const prompt = model.encode(question + model.mask), beams = 2 * BEST;
  const most = Math.min(model.maxAnswerLength, model.maxPositions - prompt.length);
  let running = [{ ids: [], score: 0 }], finished = [];
  for (let length = 1; length <= most; length++) {
    const { inputs, ends } = buildRow(prompt, running.map((beam) => beam.ids));
    const { logits } = await session.run(inputs, ["logits"]);
    const width = logits.dims[2];
    const longer = running.flatMap((beam, index) =>
      logSoftmax(logits.data.subarray(ends[index] * width, (ends[index] + 1) * width))
        .map((score, id) => ({ beam, id, score: beam.score + score })));
    const best = longer.sort(byScore).slice(0, 2 * beams)
      .map(({ beam, id, score }) => ({ ids: [...beam.ids, id], score, ends: id === model.end || length === most }));
    // Of the beams that end, only those among the best are answers; the others are there so that enough can go on.
    finished = [...finished, ...best.slice(0, beams).filter((beam) => beam.ends)].sort(byScore).slice(0, beams);
    running = best.filter((beam) => !beam.ends).slice(0, beams);
    if (!running.length || (finished.length === beams && running[0].score <= finished[beams - 1].score)) break;
    // The page stays usable between two steps.
    await new Promise((resume) => setTimeout(resume));
    signal.throwIfAborted();
  }
  return finished.slice(0, BEST).map(({ ids, score }) => ({ text: model.decode(ids), probability: Math.exp(score) }));
}

/** How much the last ⁇ of a question attends to each character, for each layer and head: (layers)(heads)(characters). */
async function measureAttention(model, session, question) {
  const { inputs } = buildRow(model.encode(question + model.mask), []);
  const { attentions } = await session.run(inputs, ["attentions"]);
  const [layers, heads, length] = attentions.dims;
  const range = (size) => [...Array(size).keys()];
  return range(layers).map((layer) => range(heads).map((head) => {
    const end = ((layer * heads + head) * length + length) * length;
    return Array.from(attentions.data.subarray(end - length, end));
  }));
}

/** The titles that a relation's wordings read in a question, one for each that fits. */
function listTitles(relation, question) {
  const patterns = relation.wordings.map((wording) =>
    new RegExp(`^${wording.split("{title}").map(escapePattern).join("(?<title>\\S(?:[^\\t]*\\S)?)")}$`, "u"));
  return patterns.map((pattern) => question.match(pattern)).filter(Boolean).map((match) => match.groups.title);
}

// The scripts that data_scripts/words.py reads without spaces.
const UNSPACED = "\\u0e00-\\u0eff\\u1000-\\u109f\\u1780-\\u17ff\\u3005\\u3007\\u3040-\\u30ff\\u3400-\\u9fff\\u{20000}-\\u{3ffff}";

const escapePattern = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");

/** Whether a line that is none of a relation's questions begins as one does, and so is hardly a title. */
function resembles(relation, line) {
  return relation.wordings.map((wording) => wording.split("{title}")[0])
    .some((before) => before.trim() && line.startsWith(before));
}

/**
 * The title in a line, and the question: a line is a whole question of some relation, or a title for the chosen one. The longest
 * wording that fits counts. A line that begins like a question is asked as it is, and has no title; so is any line where none
 * is chosen.
 */
function readQuestion(line, relations, chosen) {
  const titles = relations.flatMap((relation) => listTitles(relation, line))
    .sort((one, other) => one.length - other.length);
  if (titles.length) return { title: titles[0], question: line };
  const isTitle = chosen && !relations.some((relation) => resembles(relation, line));
  return isTitle ? { title: line, question: chosen.wordings[0].split("{title}").join(line) } : { title: null, question: line };
}

/** A document's parts: the title or one of the answers as whole words, or neither. */
function markEvidence(text, title, answers) {
  const before = `(?![${UNSPACED}])[\\p{L}\\p{N}_\\p{Mn}\\p{Mc}]`;
  const after = `(?:(?![${UNSPACED}])[\\p{L}\\p{N}_]|[\\p{Mn}\\p{Mc}])`;
  const marked = [title, ...answers].filter(Boolean).sort((one, other) => other.length - one.length).map(escapePattern);
  return text.split(new RegExp(`((?<!${before})(?:${marked.join("|")})(?!${after}))`, "u"))
    .map((part, index) => ({ part, kind: index % 2 === 0 ? "" : part === title ? "title" : "said" }));
}
