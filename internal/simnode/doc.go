// Package simnode is nodes that live in the API alone: they register, show that they are
// alive, and move the pods that are bound to them from stage to stage, as the pods'
// annotations say. Tests run them in virtual time (package sim), people by kemudi simulate
// (package simulate). They are not node agents: docs/decisions/018-simulated-nodes.md.
package simnode
