// Package call is a request for a resource, from HTTP or from the same process: what
// it is about, who makes it, and what it says ([Call]); how an object in a request's
// body is read ([Document]); and what comes of it ([Result]). What is done about it
// is decided elsewhere.
package call
