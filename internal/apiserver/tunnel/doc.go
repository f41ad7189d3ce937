// Package tunnel hands HTTP connections through to where pods run: logs, exec,
// attach and port forwards to the agent of the pod's node, and proxied requests
// to pods, services and nodes themselves.
//
// Start at [Request], which is all that a tunnel knows of the API: how to read
// an object, to ask admission and to answer with an error. Who may open a
// tunnel has been decided before.
package tunnel
