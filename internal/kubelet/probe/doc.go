// Package probe asks containers whether they have started, live and are ready.
// [Worker] decides, as a pure function of time and results, when a probe is due
// and what its results mean; [Prober] carries one out.
//
// The package starts no goroutine and no timer: whoever owns the pod asks when
// the next probe is due, runs it beside its own work, and hands the result back.
// Lifecycle hooks use the same handlers.
package probe
