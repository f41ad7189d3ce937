// Package machine reads what the machine is, has and uses, from /proc, /sys and
// /etc. What of it a node tells is the business of others.
package machine
