"use strict";
// What the models of `posgpt demo` answer: its server computes it.

async function load() {}

// The corpus is the server's.
const isKnown = () => false;

async function askModels(title, question, signal) {
  const response = await fetch("ask", { method: "POST", body: JSON.stringify({ title, question }), signal });
  const answer = await response.json();
  if (answer.error) throw new Error(answer.error);
  return answer;
}
