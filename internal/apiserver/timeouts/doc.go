// Package timeouts bounds how long the server waits for its clients: for the body
// of a request ([Body]), for what is left of a body that nobody wants ([Hurry]),
// and for room to send more of an answer that goes on ([Stream]). Answers that end
// have a deadline as a whole, which http.Server.WriteTimeout sets and [Exempt] lifts.
//
// A deadline in the past is how a goroutine that waits for a client is woken: over
// HTTP/1 it is the connection's, over HTTP/2 the stream's. It is set only where
// the time is up, so that who is in time pays for a timer at most.
package timeouts
