// Package stream has the output of executions while they run: tokens of a model, progress, log lines. A handler writes
// frames, and readers in any process follow the frames, across attempts and from any position. Readers learn of lost frames.
//
//	var Token = stream.Frame[string]{Type: "token"}
//
//	err := Token.Write(ctx, job.Stream(), "Hello") // in a handler
//	for token, err := range Token.Tail(ctx, eng, execution, stream.TailOptions{}) {
//
// In the order of use:
//   - [Frame.Write] writes to the stream of a worker's job, or to a turn. Programs without a worker use [Append],
//     [AppendBatch] or [AppendEach]. [Check] refuses a frame early. [Count] shows whether an append with an unknown outcome
//     was committed.
//   - [Tail] and [Frame.Tail] follow an execution from any [Position].
//   - [Read] returns a part of one attempt, also after the end, and [ReadSummary] the document of the summary frames.
//   - [Handler] serves the frames to web pages as server-sent events.
//
// A browser reads such events without a library:
//
//	const source = new EventSource("/output?execution=" + execution)
//	source.onmessage = event => { const frame = JSON.parse(event.data); … }
//	source.addEventListener("end", () => source.close())
//
// [engine.StreamConfig] has the limits, and how many frames a stream keeps.
package stream
