// Package tokens fills Secrets of type kubernetes.io/service-account-token with
// a token that does not end, and deletes those whose account is gone. A controller of
// its own, the cleaner, takes tokens from service that clusters of old have made
// without being asked, and that nobody uses.
package tokens
