// Which codecs do the clients not bring? lz4 frames, zstd, and snappy in the framing of the Java library.
import lz4 from 'lz4js'
import snappy from 'snappyjs'
import { ZstdCodec } from 'zstd-codec'

const simple = await new Promise(resolve => ZstdCodec.run(zstd => resolve(new zstd.Simple())))
const XERIAL = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0, 0, 0, 0, 1, 0, 0, 0, 1])

export const zstdCompress = bytes => Buffer.from(simple.compress(bytes))
export const zstdDecompress = bytes => Buffer.from(simple.decompress(bytes))
export const lz4Compress = bytes => Buffer.from(lz4.compress(bytes))
export const lz4Decompress = bytes => Buffer.from(lz4.decompress(bytes))

export function snappyCompress (bytes) {
  const block = Buffer.from(snappy.compress(bytes))
  const length = Buffer.alloc(4)
  length.writeInt32BE(block.length)
  return Buffer.concat([XERIAL, length, block])
}

export function snappyDecompress (bytes) {
  if (!bytes.subarray(0, 8).equals(XERIAL.subarray(0, 8))) return Buffer.from(snappy.uncompress(bytes))
  const blocks = []
  for (let at = XERIAL.length; at < bytes.length;) {
    const length = bytes.readInt32BE(at)
    blocks.push(Buffer.from(snappy.uncompress(bytes.subarray(at + 4, at + 4 + length))))
    at += 4 + length
  }
  return Buffer.concat(blocks)
}
