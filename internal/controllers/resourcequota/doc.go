// Package resourcequota keeps the status of quotas: what they allow, and what of it
// is taken. What is written is charged by admission already (admission/quota), so
// that here is counted what was there before a quota, what has been given back
// since, and what charges have missed.
//
// A count is of one revision: of all objects as they were then, against the
// quota's own status as it was then. What differs is added to the status of now, so
// that writes that are charged meanwhile neither are lost nor hold the count up.
//
// plan.go adds up, resourcequota.go finds what to count and writes what came of it.
package resourcequota
