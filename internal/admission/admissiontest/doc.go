// Package admissiontest has what the tests of plugins share: a cluster that is
// caches alone, and writes made of a line of YAML. For tests only.
package admissiontest
