// Package node proves the node agent with real containers: the embedded runtime, an
// agent and an API server on a memory store in one process, which has a network of
// its own. What the agent decides is proved beside its code, on a simulated runtime.
//
// There is nothing but tests here. They need root and the programs embedded in
// kemudi (make runtime), and are skipped without.
package node
