// Command awscloud is a stand-in of a cloud, for the manager of that cloud's nodes and balancers that others wrote: go.mod names
// it as a tool. It has the machines, networks and packet filters that it starts with, and the balancers that it is asked for,
// takes their settings as the cloud does, and carries no traffic. What it does not know is an error of its own, so
// that nothing is taken for granted.
//
// It listens at the address of its argument. GET /balancers says what balancers there are, /groups what the packet
// filters let in, DELETE /machines/ID ends a machine.
//
// Nothing of it is part of Kemudi.
package main
