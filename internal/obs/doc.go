// Package obs is what lets people see into a running Kemudi: the log's set-up,
// the metrics registry and the health checks.
//
// It knows nothing of what is logged, measured or checked: a package declares
// its metrics in its own metrics.go, gets a *slog.Logger handed in, and adds
// its checks to a [Health].
package obs
