// Package flowcontrol declares the kinds of flowcontrol.apiserver.k8s.io: which
// requests belong together, and how many of them run at a time. What the server
// does by them is not here: internal/apiserver/flow.
package flowcontrol
