// Command csi is a stand-in of a CSI driver, for the programs beside drivers that others wrote: go.mod names these as tools. It has
// volumes and snapshots in name alone: it makes, grows, changes, attaches and removes them as asked, once however often, and refuses what a driver must.
//
// It listens at the socket of its argument. SIGTERM ends it. Each call is a line of its output, so that a test sees what a driver
// was asked for.
//
// Nothing of it is part of Kemudi.
package main
