// Package devices finds devices for claims: a pure allocator over what drivers
// publish in ResourceSlices and what ResourceClaims have been given.
//
// Start at [Inventory], which is kept up to date change by change, so that an
// attempt costs what it looks at and nothing else. [Inventory.Plan] reads the claims of a
// pod once, [Inventory.Try] looks whether a node can serve them, and [Inventory.Allocate]
// says with which devices.
//
//	pool ──── slice ──── device ──── use (who has it, and how much of it)
//	 │     (of the newest     │
//	counters  generation)   verdicts of selectors, kept as long as the device is published so
//
// The search tries devices in a fixed order and takes the first solution, so that equal
// inventories give equal results. It is bounded by steps, and passes over a device that
// could stand in for one that has failed in its place.
//
// Words, reasons and limits are upstream's. Not here: who asks, what a pod is, writing
// anything, time. Expressions are compiled by whoever makes the Inventory, as [Expressions] does.
//
// Invariants, cited by number in the code:
//
//	D1 A search leaves the inventory as it found it.
//	D2 A device that is not shared is in one allocation at most, those with admin access not counted.
//	D3 What allocations take of a device or of a counter is never more than it has.
//
// An Inventory belongs to one goroutine.
package devices
