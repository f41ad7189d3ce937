// Package request reads what an HTTP request to the API says by its path,
// method, parameters and headers: the resource it is about, the options of the
// verb, which it also checks, whoever gives them, the form of answer that its
// client accepts, and where a list goes on. It knows neither which resources
// exist nor who is asking.
package request
