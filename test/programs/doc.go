// Package programs is a module of programs that others wrote, as tests run them against Kemudi: its go.mod
// names them as tools, with their versions. The folder operator has a program of ours on the
// libraries that most operators use.
//
// Nothing of it is part of Kemudi.
package programs
