// Package tainteviction deletes pods from nodes with NoExecute taints that they
// do not tolerate, or tolerate only for a time.
package tainteviction
