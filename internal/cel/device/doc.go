// Package device evaluates the expressions that choose devices: the selectors of
// device classes and of the requests of resource claims. Validation, the scheduler and
// whoever else asks whether a device is meant compile and evaluate them here alone.
//
// What an expression may say, and what it costs, is the library's affair
// (k8s.io/dynamic-resource-allocation/cel), so that an expression means here what it
// means elsewhere. Nothing is built before the first expression is compiled.
//
// Which devices there are, and who gets one, is not for this package.
package device
