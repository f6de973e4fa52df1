"use strict";
// What a model answers, and what it looks at, computed in the visitor's browser.

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

/** The bytes that an element of the page holds. */
async function unpack(id) {
  const text = atob(document.getElementById(id).textContent), bytes = new Uint8Array(text.length);
  for (let index = 0; index < text.length; index++) bytes[index] = text.charCodeAt(index);
  const unpacked = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(unpacked).arrayBuffer());
}

const runnable = [];
let corpus = null;

async function load() {
  // Threads need headers that a file has not.
  ort.env.wasm.numThreads = 1;
  ort.env.wasm.wasmBinary = await unpack("runtime");
  if (document.getElementById("corpus")) corpus = JSON.parse(new TextDecoder().decode(await unpack("corpus")));
  for (const [number, each] of settings.models.entries()) {
    const session = await ort.InferenceSession.create(await unpack(`model-${number}`));
    runnable.push([new Model(each, settings.mask, settings.unknown), session]);
  }
}

const isKnown = (title) => corpus !== null && findDocuments(title).length > 0;

/** Ask all models; throws an error with what to say if the question is too long. */
async function askModels(title, question, signal) {
  const found = title && corpus ? findDocuments(title) : [];
  // As the corpus spells it.
  if (found.length) {
    const parts = settings.relations.flatMap(({ wordings }) => wordings.map((wording) => wording.split("{title}")))
      .find((each) => each.join(title) === question);
    if (parts) question = parts.join(found[0].title);
    title = found[0].title;
  }
  const answers = [];
  for (const [model, session] of runnable) {
    const typed = Array.from(title ?? question), room = model.maxPositions - Array.from(question).length - 2;
    if (room < 1) {
      const most = typed.length + room - 1, start = typed.slice(0, 40).join("");
      throw new RangeError(`“${start}…” has ${typed.length} characters; ${model.name} reads at most ${most} there.`);
    }
    const attention = await measureAttention(model, session, question);
    const best = await findBestAnswers(model, session, question, signal);
    answers.push({ best, attention, unknown: model.listUnknown(question) });
  }
  return { title, question, answers, documents: title && corpus && found.map((each) => each.document) };
}

/** All that may be the title of a document `TITLE. text`: what stands before one of its first full stops. */
function listStarts(text) {
  const starts = [];
  for (let end = text.indexOf(". "); end >= 0 && end < 199; end = text.indexOf(". ", end + 1)) starts.push(text.slice(0, end));
  return starts;
}

/** Find the documents of a title, or of the only one that differs from it in case alone. */
function findDocuments(title) {
  const find = (fold) => {
    const wanted = fold(title);
    return corpus.flatMap(([own, text, where]) => {
      // A table says what a document's title is; in a text file, it may contain full stops itself.
      const given = (own === null ? listStarts(text) : [own]).find((each) => fold(each) === wanted);
      return given === undefined ? [] : [{ title: given, document: [where, text] }];
    });
  };
  const fold = (text) => text.toUpperCase().toLowerCase().replaceAll("i\u0307", "i");
  const exact = find((text) => text), alike = exact.length ? exact : find(fold);
  return new Set(alike.map((each) => each.title)).size === 1 ? alike : [];
}
