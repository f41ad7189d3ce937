// Package tracing makes spans of what a part of the process does, and sends them to a
// collector: OpenTelemetry, by OTLP over gRPC, as the reference documents configure it.
//
//	T1 Who is given no configuration has a nil [Provider], by which nothing costs anything: no goroutine runs,
//	   and all methods of a nil [Span] do nothing.
//	T2 There is no global state: a process may have several providers, of different parts.
//	T3 Who follows whom: a span goes on in the trace that its context has. A request from outside goes on in its
//	   client's only if the client is believed; otherwise it begins one of its own, and has a link to the client's.
//	T4 A collector that does not answer holds nobody up: what has no room is dropped, and the end is bounded.
package tracing
