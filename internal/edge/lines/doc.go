// Package lines sends the plainest of requests over connections that it keeps: by HTTP/1.1, without TLS, a body or
// an upgrade. Start at [Sender.Send].
//
// A request goes out and its answer comes back in the goroutine of who sends it: there is none for a connection, and a
// connection that waits holds no more than its buffer. What is unusual about a request is told before anything is
// done, and is left to [net/http.Transport]; answers are read by [net/http.ReadResponse], as there.
//
// Invariants, cited by number in the code:
//
//	L1 What is sent is one request, however it was made: names and values with what could end a line are not sent from here.
//	L2 A connection is kept only if its last answer was read to its end, and nothing came after that.
//	L3 A request goes out again only over another connection, if the first one was an old one that was closed before an
//	   answer began, and if nothing was sent or sending it twice does no harm.
//	L4 Each wait for the other side ends: by the time limit, or with the context of the request.
package lines
