// Package server serves the node agent's API, on port 10250: pods, logs, exec, attach,
// port-forward, metrics, health and the machine's own logs. Start at [Server.Handler].
//
// Who may ask is decided before, by package guard or by whoever serves the handler; how
// streams pass is package relay's business.
package server
