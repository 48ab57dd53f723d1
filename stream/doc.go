// Package stream has the output of executions while they run: tokens of a model, progress, log lines. A handler writes frames, and
// readers in any process follow them, across attempts and from any position. A lost frame is reported.
//
//	var Token = stream.Frame[string]{Type: "token"}
//
//	err := Token.Write(ctx, job.Stream(), "Hello") // in a handler
//	for token, err := range Token.Tail(ctx, eng, execution, stream.TailOptions{}) {
//
// # Tasks
//
// Write: [Frame.Write] to the stream of a worker's job or to a turn. A program that claims by itself: [Append], [AppendBatch],
// [AppendEach]; [Check] refuses a frame early, and [Count] shows whether an append with an unknown outcome was committed.
//
// Follow: [Tail], [Frame.Tail]. They continue at any [Position].
//
// Read: [Read] returns a part of one attempt, also after its end, and [ReadSummary] the document of its summary frames.
//
// Show it on a web page: [Handler] serves it as server-sent events, which a browser reads by itself:
//
//	const source = new EventSource("/output?execution=" + execution)
//	source.onmessage = event => { const frame = JSON.parse(event.data); … }
//	source.addEventListener("end", () => source.close())
//
// [engine.StreamConfig] has the limits, and how much of a stream is kept.
package stream
