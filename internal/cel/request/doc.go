// Package request evaluates the expressions that are about a request which changes
// something: the match conditions of webhooks, and what admission policies say.
// Validation and admission compile and evaluate them here alone.
//
// What an expression may say, and what it costs, is the library's affair
// (k8s.io/apiserver/pkg/cel), so that an expression means here what it means elsewhere.
// Nothing is built before the first expression is compiled: [Environment].
//
// Which requests an expression is evaluated for, and what follows from its value, is not
// for this package.
package request
