// Package watch follows a resource for one client: it finds where the watch begins, and
// has its events sent as they happen, by the connection's lane where there is one. What
// an event looks like is said in package answer.
package watch
