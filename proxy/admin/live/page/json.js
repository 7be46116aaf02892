// JSON text with line breaks and indentation; its numbers and strings stay as they are.

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;
const STEP = "  ";
const DEEPEST = 50; // levels that are indented

export function indented(text) {
  let depth = 0;
  let out = "";
  const tokens = text.match(TOKEN) || [];
  const line = () => `\n${STEP.repeat(Math.min(depth, DEEPEST))}`;
  tokens.forEach((token, index) => {
    const empty = (token === "}" || token === "]") && (tokens[index - 1] === "{" || tokens[index - 1] === "[");
    if (token === "}" || token === "]") {
      depth -= 1;
      out += empty ? token : line() + token;
    } else {
      out += token;
      if (token === "{" || token === "[") {
        depth += 1;
        if (tokens[index + 1] !== "}" && tokens[index + 1] !== "]") out += line();
      } else if (token === ",") out += line();
      else if (token === ":") out += " ";
    }
  });
  return out;
}
