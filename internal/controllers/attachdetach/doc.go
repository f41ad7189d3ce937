// Package attachdetach has volumes of CSI drivers attached to the nodes whose pods use them, and detached
// when none does any more. It attaches nothing itself: it asks the driver's attacher, by a
// VolumeAttachment, and tells the node, in its status, what has become of that.
//
// A volume is looked at as a whole, on all nodes at once: one that only one node may have is never asked
// for twice. What a node's status says of all of its volumes is written apart.
//
// What must hold:
//
//	A1 A volume that may be attached to one node only is asked for on a second one when nothing is left of the first attachment.
//	A2 An attachment that the node may use (its status has it in volumesInUse) is not taken away, unless the node is lost: not ready for
//	   [lostAfter], or tainted as out of service.
//	A3 Before it is taken away, the node's status says so no more, and what the node uses is read after that: a node that begins to
//	   use a volume says so first, and then looks whether it is attached.
//	A4 Only attachments by the names that this controller gives them are its own; those of others are left alone.
//	A5 What is known is in the API: after a restart all goes on from there. Only waits begin anew.
//
// Start at [New]. plan.go decides; volume.go looks and acts; node.go has the status of nodes.
package attachdetach
