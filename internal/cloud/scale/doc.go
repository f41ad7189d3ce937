// Package scale is what a cloud has whose machines come and go as pods need them: pools of
// machines that are alike ([Cloud]).
//
// When machines come and go is decided by package nodepool; a cloud only says which there
// are, and starts and stops them when it is told to.
package scale
