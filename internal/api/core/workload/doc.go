// Package workload holds what the kinds that make pods of a template declare
// alike: columns, warnings, the scale subresource, and the rules for their pods.
//
// A kind says once, as a [Kind], where its template, selector and counts are.
// What a template may hold is in podspec; what only one kind has is with the kind.
package workload
