// @platformatic/kafka as an agent of the conformance suite: node platformatic.mjs HOST:PORT[,...]
import zlib from 'node:zlib'
import { Lacks, data, serve, sleep, stillOurs, text } from './agent.mjs'
import * as codecs from './codecs.mjs'

// Before the client looks: Node.js has zstd from 22.15 on.
zlib.zstdCompressSync ??= codecs.zstdCompress
zlib.zstdDecompressSync ??= codecs.zstdDecompress
const { Admin, ConfigResourceTypes, Consumer, IncrementalAlterConfigOperationTypes, Producer, compatibilityPartitioner } =
  await import('@platformatic/kafka')

const common = {
  clientId: 'platformatic', bootstrapBrokers: process.argv[2].split(','), metadataMaxAge: 500, retries: 4, retryDelay: 100,
  timeout: 10000, connectTimeout: 5000, autocreateTopics: false
}
const admin = new Admin(common)
const members = new Map()
const open = []
// A member that is closed before it had a partition says so as an event of a stream that nobody holds yet.
process.on('uncaughtException', why => {
  if (why?.code !== 'PLT_KFK_NETWORK') throw why
})

const metadata = topic => admin.metadata({ topics: [topic], forceUpdate: true })
const partitionsOf = async topic => (await metadata(topic)).topics.get(topic).partitionsCount
const resource = (ask, more) => ({ resourceType: ConfigResourceTypes.TOPIC, resourceName: ask.topic, ...more })

const operations = {
  async create (ask) {
    const configs = Object.entries(ask.configs ?? {}).map(([name, value]) => ({ name, value }))
    await admin.createTopics({ topics: [ask.topic], partitions: ask.partitions, replicas: ask.replication ?? -1, configs })
  },
  delete: ask => admin.deleteTopics({ topics: [ask.topic] }),
  grow: ask => admin.createPartitions({ topics: [{ name: ask.topic, count: ask.total, assignments: null }] }),
  async configs (ask) {
    const found = await admin.describeConfigs({ resources: [resource(ask, { configurationKeys: null })] })
    return Object.fromEntries(found[0].configs.map(one => [one.name, one.value]))
  },
  alter: ask => admin.incrementalAlterConfigs({
    resources: [resource(ask, {
      configs: [{ name: ask.name, value: ask.value, configOperation: IncrementalAlterConfigOperationTypes.SET }]
    })]
  }),
  async trim (ask) {
    const found = await admin.deleteRecords({ topics: [{ name: ask.topic, partitions: [{ partition: ask.partition, offset: BigInt(ask.offset) }] }] })
    return Number(found[0].partitions[0].lowWatermark)
  },
  async topics () {
    const names = await admin.listTopics()
    if (names.length === 0) return {}
    const found = await admin.metadata({ topics: names, forceUpdate: true })
    return Object.fromEntries([...found.topics].map(([name, one]) => [name, one.partitionsCount]))
  },
  async cluster () {
    const found = await admin.metadata({ topics: [], forceUpdate: true })
    return { brokers: [...found.brokers.keys()], controller: found.controllerId }
  },
  groups: async () => [...(await admin.listGroups({ types: ['classic'] })).keys()],
  async group (ask) {
    const found = (await admin.describeGroups({ groups: [ask.group] })).get(ask.group)
    const assigned = [...found.members.values()].flatMap(one => [...(one.assignments?.values() ?? [])])
    return { state: found.state, members: found.members.size, partitions: assigned.flatMap(one => one.partitions).length }
  },
  drop_group: ask => admin.deleteGroups({ groups: [ask.group] }),
  async committed (ask) {
    const partitionIndexes = Array.from({ length: await partitionsOf(ask.topic) }, (_, at) => at)
    const found = await admin.listConsumerGroupOffsets({ groups: [{ groupId: ask.group, topics: [{ name: ask.topic, partitionIndexes }] }] })
    const rows = found[0]?.topics[0]?.partitions ?? []
    return Object.fromEntries(rows.filter(one => one.committedOffset >= 0n)
      .map(one => [one.partitionIndex, { offset: Number(one.committedOffset), metadata: one.metadata ?? '' }]))
  },
  async set_offsets (ask) {
    const partitionOffsets = Object.entries(ask.offsets).map(([partition, offset]) => ({ partition: Number(partition), offset: BigInt(offset) }))
    await admin.alterConsumerGroupOffsets({ groupId: ask.group, topics: [{ name: ask.topic, partitionOffsets }] })
  },
  async offsets (ask) {
    const at = { earliest: -2n, latest: -1n }[ask.at] ?? BigInt(ask.at)
    const partitions = Array.from({ length: await partitionsOf(ask.topic) }, (_, partitionIndex) => ({ partitionIndex, timestamp: at }))
    const found = await admin.listOffsets({ topics: [{ name: ask.topic, partitions }] })
    return Object.fromEntries(found[0].partitions.map(one => [one.partitionIndex, Number(one.offset)]))
  },
  async produce (ask) {
    const producer = new Producer({
      ...common, idempotent: Boolean(ask.idempotent || ask.transaction), partitioner: compatibilityPartitioner,
      ...(ask.transaction ? { transactionalId: ask.transaction } : {})
    })
    const messages = ask.records.map(one => {
      const names = (one.headers ?? []).map(([name]) => name)
      if (new Set(names).size < names.length) throw new Lacks('headers are a map: a name cannot repeat')
      return {
        topic: ask.topic, key: data(one.key) ?? undefined, value: data(one.value) ?? undefined,
        ...(one.partition === undefined || one.partition === null ? {} : { partition: one.partition }),
        ...(one.timestamp === undefined ? {} : { timestamp: BigInt(one.timestamp) }),
        headers: new Map((one.headers ?? []).map(([name, value]) => [Buffer.from(name), data(value) ?? undefined]))
      }
    })
    const count = await partitionsOf(ask.topic)
    try {
      const transaction = ask.transaction ? await producer.beginTransaction() : null
      const sent = await (transaction ?? producer).send({ messages, acks: ask.acks ?? -1, compression: ask.compression ?? 'none' })
      if (ask.end === 'commit') await transaction.commit()
      if (ask.end === 'abort') await transaction.abort()
      // Acknowledgements name the first offset of each partition.
      const next = new Map((sent.offsets ?? []).map(one => [one.partition, Number(one.offset)]))
      return messages.map(one => {
        const partition = one.partition ?? (next.size === 1 ? [...next.keys()][0] : compatibilityPartitioner(one, one.key) % count)
        const offset = next.get(partition)
        next.set(partition, offset + 1)
        return { partition, offset }
      })
    } finally {
      if (ask.transaction && !ask.end) open.push(producer)
      else await producer.close(true)
    }
  },
  async read (ask) {
    const count = await partitionsOf(ask.topic)
    const mode = typeof ask.offset === 'string' ? { mode: ask.offset } : {
      mode: 'manual',
      offsets: Array.from({ length: count }, (_, partition) => ({
        topic: ask.topic, partition, offset: BigInt(partition === ask.partition ? ask.offset : 0)
      }))
    }
    const one = await member({ group: `read-${process.pid}-${Math.random()}`, topics: [ask.topic] }, {
      ...mode, isolationLevel: ask.committed ? 1 : 0,
      ...(ask.max_bytes ? { maxBytes: ask.max_bytes, maxBytesPerPartition: ask.max_bytes } : {})
    })
    const by = Date.now() + (ask.ms ?? 15000)
    const mine = () => one.records.filter(record => record.partition === ask.partition)
    while (mine().length < ask.count && Date.now() < by && !one.failed) await sleep(20)
    await one.consumer.close(true)
    if (one.failed) throw one.failed
    return mine()
  },
  async join (ask) {
    members.set(ask.member, await member(ask, { mode: 'committed', fallbackMode: ask.reset ?? 'earliest' }))
  },
  async poll (ask) {
    const one = members.get(ask.member)
    const by = Date.now() + ask.ms
    while (one.records.length === 0 && Date.now() < by) await sleep(10)
    if (one.failed) throw one.failed
    const records = one.records.splice(0)
    const ends = new Map(records.map(record => [`${record.partition} ${record.topic}`, record]))
    if (ask.commit && records.length > 0) {
      const offsets = [...ends.values()].map(({ topic, partition, offset }) => ({ topic, partition, offset: BigInt(offset + 1), leaderEpoch: -1 }))
      const kept = await one.consumer.commit({ offsets }).then(() => true, why => stillOurs(why, code))
      if (!kept) records.length = 0
    }
    const assigned = (one.consumer.assignments ?? []).flatMap(({ topic, partitions }) => partitions.map(partition => [topic, partition]))
    return { records, assigned }
  },
  async commit (ask) {
    if (ask.offsets.some(one => one.metadata)) throw new Lacks('no metadata of commits')
    const offsets = ask.offsets.map(({ topic, partition, offset }) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: -1 }))
    await members.get(ask.member).consumer.commit({ offsets })
  },
  async leave (ask) {
    await members.get(ask.member).consumer.close(true)
    members.delete(ask.member)
  }
}

async function member (ask, more) {
  if (ask.pattern) throw new Lacks('no subscription by pattern')
  if (ask.strategy && ask.strategy !== 'roundrobin') throw new Lacks(`no ${ask.strategy}`)
  const consumer = new Consumer({
    ...common, groupId: ask.group, sessionTimeout: ask.session_ms ?? 15000, rebalanceTimeout: ask.session_ms ?? 15000,
    heartbeatInterval: 300, autocommit: false, maxWaitTime: 100,
    ...(ask.instance ? { groupInstanceId: ask.instance } : {})
  })
  const one = { consumer, records: [], failed: null }
  // What was read before is for the next owner.
  consumer.on('consumer:group:rebalance', () => { one.records = [] })
  // It waits for the others of its group: nobody waits for it to start.
  const starting = consumer.consume({ topics: ask.topics, ...more }).then(stream => {
    stream.on('error', why => { one.failed = why })
    stream.on('data', message => one.records.push({
      topic: message.topic, partition: message.partition, offset: Number(message.offset), timestamp: Number(message.timestamp),
      key: text(message.key), value: text(message.value),
      headers: [...message.headers].map(([name, value]) => [text(name), text(value)])
    }))
  }, why => { one.failed = why })
  if (!ask.member) await starting
  return one
}

/** Kafka's number lies at the end of a chain of causes. */
function code (why) {
  if (why?.apiCode !== undefined) return why.apiCode
  if (why?.message?.startsWith('Unknown topic')) return 3
  for (const cause of [...(why?.errors ?? []), why?.cause].filter(Boolean)) {
    const found = code(cause)
    if (found !== undefined) return found
  }
  return undefined
}

await serve(operations, code)
