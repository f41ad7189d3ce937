// Package flow is API Priority and Fairness: it bounds how many requests run at one
// time, and shares the seats between levels, and within a level between flows.
//
//   - F1. The first FlowSchema that a request matches, by precedence and then by name,
//     says of which level it is, and with its user or namespace of which flow.
//   - F2. A level has seats in proportion to its shares. Some it keeps; the rest it lends:
//     those of all levels are one pool, of which a level takes as many as it may borrow. Who
//     has less than its own goes before who borrows, whenever a seat is given back.
//   - F3. A flow may hold as many seats as it leaves free to its level. So one that takes all
//     it can get leaves half of them, two leave a third, and who comes next finds one.
//   - F4. What is more waits in one of the queues that its flow is dealt, the shortest. The queue
//     that has had the least, in seats times seconds, is served next.
//   - F5. What finds its queue full, waits too long, or is of a level without queues, is refused.
//   - F6. Exempt levels are not counted.
//
// What requests are, and what they are told, is not here. Tables of levels, queues and who waits, as upstream's
// paths for debugging show them, are in dump.go.
package flow
