// What do the agents for Node.js share? One JSON line in, one JSON line out; see ../README.md for the operations.
import { createInterface } from 'node:readline'

export class Lacks extends Error {}

export const text = bytes => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString())
export const data = string => (string === null || string === undefined ? null : Buffer.from(string))
export const sleep = ms => new Promise(resolve => setTimeout(resolve, ms))

/** False for the errors of a member that is none any more: what it has read is for the next owner. Other errors go on. */
export function stillOurs (why, code) {
  if ([22, 25, 27].includes(code(why))) return false
  throw why
}

/** Answers until the input ends; `code` finds Kafka's number in an error of the client. */
export async function serve (operations, code) {
  for await (const line of createInterface({ input: process.stdin })) {
    const ask = JSON.parse(line)
    let answer
    try {
      if (!operations[ask.op]) throw new Lacks(`no operation ${ask.op}`)
      answer = { ok: (await operations[ask.op](ask)) ?? null }
    } catch (why) {
      answer = why instanceof Lacks ? { lacks: why.message } : { error: { code: code(why) ?? null, text: String(why?.message ?? why) } }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0)
}
