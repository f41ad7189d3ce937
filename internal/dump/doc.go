// Package dump lists what the kernel has of links, addresses, routes and neighbours, each list
// whole: the kernel hands a long one out in parts, and says so when something was changed between
// two of them. Then it is asked again.
//
// What the lists are for does not belong here.
package dump
