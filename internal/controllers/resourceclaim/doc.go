// Package resourceclaim makes ResourceClaims for pods from templates, and gives back
// what pods have used: it takes ended pods out of the claims that were reserved for them,
// deallocates claims that nobody uses any more, and deletes those that were made for a
// pod which needs them no longer.
//
// Which devices a claim gets, and for whom it is reserved, is for the scheduler; here only
// pods are taken into an allocated claim that came to their node without the scheduler.
package resourceclaim
