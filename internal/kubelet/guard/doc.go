// Package guard stands before the node agent's API where it is served to the
// network: it finds out who asks, by client certificate or by having the API
// server look at the token, and has the API server decide whether they may.
//
// Start at [New]. It knows nothing of what is behind it but the paths.
package guard
