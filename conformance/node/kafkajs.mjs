// kafkajs as an agent of the conformance suite: node kafkajs.mjs HOST:PORT[,...]
import kafkajs from 'kafkajs'
import { Lacks, data, serve, sleep, stillOurs, text } from './agent.mjs'
import * as codecs from './codecs.mjs'

process.env.KAFKAJS_NO_PARTITIONER_WARNING = '1'
const { AssignerProtocol, CompressionCodecs, CompressionTypes, ConfigResourceTypes, Kafka, PartitionAssigners, Partitioners, logLevel } = kafkajs
const codec = (compress, decompress) => () => ({
  compress: async encoder => compress(encoder.buffer),
  decompress: async bytes => decompress(bytes)
})
CompressionCodecs[CompressionTypes.Snappy] = codec(codecs.snappyCompress, codecs.snappyDecompress)
CompressionCodecs[CompressionTypes.LZ4] = codec(codecs.lz4Compress, codecs.lz4Decompress)
CompressionCodecs[CompressionTypes.ZSTD] = codec(codecs.zstdCompress, codecs.zstdDecompress)
const COMPRESSIONS = {
  none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy, lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD
}

// Its own assigner, under the name that the other clients give to the same rule: one that they can share a group by.
const roundrobin = config => ({
  ...PartitionAssigners.roundRobin(config),
  name: 'roundrobin',
  protocol: ({ topics }) => ({
    name: 'roundrobin', metadata: AssignerProtocol.MemberMetadata.encode({ version: 0, topics, userData: Buffer.alloc(0) })
  })
})

const kafka = new Kafka({
  brokers: process.argv[2].split(','), logLevel: logLevel.NOTHING, retry: { retries: 4, initialRetryTime: 100 }
})
const admin = kafka.admin()
await admin.connect()
const members = new Map()

const resource = (ask, more) => ({ type: ConfigResourceTypes.TOPIC, name: ask.topic, ...more })

const operations = {
  async create (ask) {
    const configEntries = Object.entries(ask.configs ?? {}).map(([name, value]) => ({ name, value }))
    const made = await admin.createTopics({
      topics: [{ topic: ask.topic, numPartitions: ask.partitions, replicationFactor: ask.replication ?? -1, configEntries }]
    })
    // It answers false, and no error, to what exists already.
    if (!made) throw Object.assign(new Error('the topic exists already'), { code: 36 })
  },
  delete: ask => admin.deleteTopics({ topics: [ask.topic] }),
  grow: async ask => { await admin.createPartitions({ topicPartitions: [{ topic: ask.topic, count: ask.total }] }) },
  async configs (ask) {
    const found = await admin.describeConfigs({ resources: [resource(ask)], includeSynonyms: false })
    return Object.fromEntries(found.resources[0].configEntries.map(one => [one.configName, one.configValue]))
  },
  async alter (ask) {
    const configEntries = [{ name: ask.name, value: ask.value }]
    await admin.alterConfigs({ validateOnly: false, resources: [resource(ask, { configEntries })] })
  },
  async trim (ask) {
    // It knows no leader of a topic that it has not met before, and does not look it up.
    await admin.fetchTopicMetadata({ topics: [ask.topic] })
    await admin.deleteTopicRecords({ topic: ask.topic, partitions: [{ partition: ask.partition, offset: String(ask.offset) }] })
  },
  async topics () {
    const found = await admin.fetchTopicMetadata()
    return Object.fromEntries(found.topics.map(one => [one.name, one.partitions.length]))
  },
  async cluster () {
    const found = await admin.describeCluster()
    return { brokers: found.brokers.map(one => one.nodeId), controller: found.controller }
  },
  groups: async () => (await admin.listGroups()).groups.map(one => one.groupId),
  async group (ask) {
    const found = (await admin.describeGroups([ask.group])).groups[0]
    const assigned = found.members.map(one => AssignerProtocol.MemberAssignment.decode(one.memberAssignment))
    const partitions = assigned.flatMap(one => Object.values(one?.assignment ?? {})).flat().length
    return { state: found.state, members: found.members.length, partitions }
  },
  async drop_group (ask) {
    try {
      await admin.deleteGroups([ask.group])
    } catch (why) {
      throw why.groups?.[0] ? Object.assign(new Error(why.message), { code: why.groups[0].errorCode }) : why
    }
  },
  async committed (ask) {
    const found = (await admin.fetchOffsets({ groupId: ask.group, topics: [ask.topic] }))[0].partitions
    return Object.fromEntries(found.map(one => [one.partition, { offset: Number(one.offset), metadata: one.metadata ?? '' }]))
  },
  async set_offsets (ask) {
    const partitions = Object.entries(ask.offsets).map(([partition, offset]) => ({ partition: Number(partition), offset: String(offset) }))
    await admin.setOffsets({ groupId: ask.group, topic: ask.topic, partitions })
  },
  async offsets (ask) {
    const rows = typeof ask.at === 'number'
      ? await admin.fetchTopicOffsetsByTimestamp(ask.topic, ask.at)
      : (await admin.fetchTopicOffsets(ask.topic)).map(one => ({ ...one, offset: ask.at === 'earliest' ? one.low : one.high }))
    return Object.fromEntries(rows.map(one => [one.partition, Number(one.offset)]))
  },
  async produce (ask) {
    const producer = kafka.producer({
      createPartitioner: Partitioners.DefaultPartitioner, allowAutoTopicCreation: false,
      idempotent: Boolean(ask.idempotent || ask.transaction), maxInFlightRequests: ask.transaction ? 1 : null,
      transactionalId: ask.transaction, metadataMaxAge: 1000, retry: { retries: 4, initialRetryTime: 100 }
    })
    await producer.connect()
    const sender = ask.transaction ? await producer.transaction() : producer
    const messages = ask.records.map(one => ({
      key: data(one.key), value: data(one.value), partition: one.partition ?? undefined,
      timestamp: one.timestamp === undefined ? undefined : String(one.timestamp),
      headers: headersOf(one.headers)
    }))
    try {
      const written = await sender.send({
        topic: ask.topic, messages, acks: ask.acks ?? -1, compression: COMPRESSIONS[ask.compression ?? 'none'], timeout: 10000
      })
      if (ask.end === 'commit') await sender.commit()
      if (ask.end === 'abort') await sender.abort()
      return placed(written, ask.records)
    } finally {
      if (!ask.transaction || ask.end) await producer.disconnect()
    }
  },
  async read (ask) {
    const one = await member({ topics: [ask.topic], group: `read-${process.pid}-${Math.random()}`, reset: ask.offset === 'latest' ? 'latest' : 'earliest' }, {
      readUncommitted: !ask.committed, ...(ask.max_bytes ? { maxBytes: ask.max_bytes, maxBytesPerPartition: ask.max_bytes } : {})
    }, ask)
    const by = Date.now() + (ask.ms ?? 15000)
    const mine = () => one.records.filter(record => record.partition === ask.partition)
    while (mine().length < ask.count && Date.now() < by) await sleep(20)
    await one.consumer.disconnect()
    return mine()
  },
  async join (ask) {
    members.set(ask.member, await member(ask, {}))
  },
  async poll (ask) {
    const one = members.get(ask.member)
    const by = Date.now() + ask.ms
    while (one.records.length === 0 && Date.now() < by) await sleep(10)
    if (one.failed) throw one.failed
    const records = one.records.splice(0)
    const ends = new Map(records.map(record => [`${record.partition} ${record.topic}`, record]))
    if (ask.commit && records.length > 0) {
      const offsets = [...ends.values()].map(({ topic, partition, offset }) => ({ topic, partition, offset: String(offset + 1) }))
      const kept = await one.consumer.commitOffsets(offsets).then(() => true, why => stillOurs(why, code))
      if (!kept) records.length = 0
    }
    return { records, assigned: one.assigned }
  },
  async commit (ask) {
    const rows = ask.offsets.map(one => ({ ...one, offset: String(one.offset) }))
    await members.get(ask.member).consumer.commitOffsets(rows)
  },
  async leave (ask) {
    await members.get(ask.member).consumer.disconnect()
    members.delete(ask.member)
  }
}

/** An array for a name that repeats: headers are an object here. */
function headersOf (pairs) {
  const headers = {}
  for (const [name, value] of pairs ?? []) {
    headers[name] = name in headers ? [headers[name], data(value)].flat() : data(value)
  }
  return headers
}

/** Acknowledgements name the first offset of each partition. */
function placed (written, records) {
  const next = new Map(written.map(one => [one.partition, Number(one.baseOffset)]))
  return records.map(record => {
    const partition = record.partition ?? (written.length === 1 ? written[0].partition : partitionOf(record))
    const offset = next.get(partition)
    next.set(partition, offset + 1)
    return { partition, offset }
  })
}

/** Where the client's own partitioner puts a record, because acknowledgements do not say. */
function partitionOf (record) {
  const partitionMetadata = Array.from({ length: 7 }, (_, partitionId) => ({ partitionId, leader: 1 }))
  return Partitioners.DefaultPartitioner()({ topic: '', partitionMetadata, message: { key: data(record.key) } })
}

async function member (ask, more, read) {
  if (ask.instance) throw new Lacks('no static members')
  if (ask.strategy && ask.strategy !== 'roundrobin') throw new Lacks(`no ${ask.strategy}`)
  const consumer = kafka.consumer({
    groupId: ask.group, sessionTimeout: ask.session_ms ?? 30000, heartbeatInterval: 300, metadataMaxAge: 1000, maxWaitTimeInMs: 100,
    rebalanceTimeout: 10000, allowAutoTopicCreation: false, partitionAssigners: [roundrobin], ...more
  })
  const one = { consumer, records: [], assigned: [], failed: null }
  consumer.on(consumer.events.GROUP_JOIN, event => {
    one.assigned = Object.entries(event.payload.memberAssignment).flatMap(([topic, partitions]) => partitions.map(partition => [topic, partition]))
    one.records = one.records.filter(record => one.assigned.some(([topic, partition]) => record.topic === topic && record.partition === partition))
  })
  consumer.on(consumer.events.REBALANCING, () => { one.assigned = []; one.records = [] })
  consumer.on(consumer.events.CRASH, event => { if (!event.payload.restart) one.failed = event.payload.error })
  await consumer.connect()
  const topics = ask.pattern ? [new RegExp(ask.pattern)] : ask.topics
  await consumer.subscribe({ topics, fromBeginning: (ask.reset ?? 'earliest') === 'earliest' })
  await consumer.run({
    autoCommit: false, eachBatchAutoResolve: true,
    eachBatch: async ({ batch }) => {
      for (const message of batch.messages) {
        const headers = Object.entries(message.headers ?? {}).flatMap(([name, value]) => [value].flat().map(each => [name, text(each)]))
        one.records.push({
          topic: batch.topic, partition: batch.partition, offset: Number(message.offset), timestamp: Number(message.timestamp),
          key: text(message.key), value: text(message.value), headers
        })
      }
    }
  })
  // It reads in groups only: the place to begin is sought once it has joined.
  if (typeof read?.offset === 'number') {
    consumer.seek({ topic: read.topic, partition: read.partition, offset: String(read.offset) })
  }
  return one
}

function code (why) {
  // It looks before it asks: a group with members keeps its offsets.
  if (why?.message?.includes('must have no running instances')) return 68
  const causes = [why, why?.cause, why?.errors?.[0], why?.cause?.partitions?.[0]?.error]
  return causes.map(one => one?.code).find(code => typeof code === 'number')
}

await serve(operations, code)
