// Package nodepool has pools of machines grow by pods that fit nowhere, by what these ask for, devices
// included, and shrink when machines have nothing to do. Pools are a cloud's ([scale.Cloud]); simulated
// nodes and real machines are decided about alike.
//
// Start at [Scaler]: it follows pods and nodes (demand.go), asks the cloud when something may be to be done, and does
// it (grow.go, shrink.go). What comes for which pods is a pure decision (growth.go, room.go).
//
// Invariants, cited by number in the code:
//
//	N1 A machine is stopped only when it has been closed to pods for a while, and then has none.
//	N2 No machine comes for a pod that one which is on its way, or about to leave, has room for.
//	N3 What the cloud does not know, or says by failing, starts and stops nothing.
//	N4 A pod for which a machine has come in vain has to wait longer each time until another one comes for it.
package nodepool
