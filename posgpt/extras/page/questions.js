"use strict";
// What is asked, and what a document says about it. Nothing here touches the page.

/** The titles that a relation's wordings read in a question, one for each that fits. */
function listTitles(relation, question) {
  const patterns = relation.wordings.map((wording) =>
    new RegExp(`^${wording.split("{title}").map(escapePattern).join("(?<title>\\S(?:[^\\t]*\\S)?)")}$`, "u"));
  return patterns.map((pattern) => question.match(pattern)).filter(Boolean).map((match) => match.groups.title);
}

// The scripts that data_scripts/words.py reads without spaces.
const UNSPACED = "\\u0e00-\\u0e4f\\u0e5a-\\u0ecf\\u0eda-\\u0eff\\u1000-\\u103f\\u104a-\\u108f\\u109a-\\u109f\\u1780-\\u17df\\u17ea-\\u17ff\\u3005\\u3007\\u3040-\\u30ff\\u3400-\\u9fff\\u{20000}-\\u{3ffff}";

const escapePattern = (text) => text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");

/** Whether a line that is none of a relation's questions begins as one does, or ends so, and so is hardly a title. */
function resembles(relation, line) {
  const bare = (text) => text.replace(/[\p{P}\s]+$/u, "");
  return relation.wordings.map((wording) => wording.split("{title}")).some(([before, after]) =>
    before.trim() ? line.startsWith(before) : bare(after).trim() && bare(line).endsWith(bare(after)));
}

/**
 * The title in a line, and the question: a line is a whole question of some relation, or a title for the chosen one. The longest
 * wording that fits counts. A line that is no title of the corpus, and begins or ends like a question, is asked as it is, and has no
 * title; so is any line where none is chosen.
 */
function readQuestion(line, relations, chosen, isKnown) {
  const titles = relations.flatMap((relation) => listTitles(relation, line))
    .sort((one, other) => one.length - other.length);
  if (titles.length) return { title: titles[0], question: line };
  const isQuestion = /[?？؟፧\u037e]$|\p{Script=Greek}[)»"]*;$|か。$/u.test(line) || relations.some((relation) => resembles(relation, line));
  const isTitle = chosen && (isKnown(line) || !isQuestion);
  return isTitle ? { title: line, question: chosen.wordings[0].split("{title}").join(line) } : { title: null, question: line };
}

/** A document's parts: the title or one of the answers as whole words, or neither. */
function markEvidence(text, title, answers) {
  const before = `(?![${UNSPACED}])[\\p{L}\\p{N}_\\p{Mn}\\p{Mc}][\\u200c\\u200d]?`;
  const after = `[\\u200c\\u200d]?(?:(?![${UNSPACED}])[\\p{L}\\p{N}_]|[\\p{Mn}\\p{Mc}])`;
  const marked = [title, ...answers].filter(Boolean).sort((one, other) => other.length - one.length).map(escapePattern);
  return text.split(new RegExp(`((?<!${before})(?:${marked.join("|")})(?!${after}))`, "u"))
    .map((part, index) => ({ part, kind: index % 2 === 0 ? "" : part === title ? "title" : "said" }));
}
