// Package resourceclaim makes ResourceClaims for pods from templates, and gives back
// what pods have used: it removes ended pods from reservedFor of their claims,
// deallocates claims without users, and deletes claims of templates when their pod no longer
// needs them.
//
// Which devices a claim gets, and for whom it is reserved, is for the scheduler; here only
// pods are taken into an allocated claim that came to their node without the scheduler.
package resourceclaim
