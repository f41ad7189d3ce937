// Package runtime looks at what the container runtime has: who it is, which sandboxes
// and containers of pods there are, and what becomes of them. Start at [Watch.Run].
//
// Nothing here changes anything in the runtime: package container does. What is seen
// is handed on by pod; who owns the pod takes it in.
package runtime
