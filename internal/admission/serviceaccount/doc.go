// Package serviceaccount is the plugin ServiceAccount: the account of a pod and
// its token. The accounts themselves are made by controllers.
package serviceaccount
