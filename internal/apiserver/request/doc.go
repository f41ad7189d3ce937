// Package request reads what an HTTP request to the API says by its path,
// method, parameters and headers: the resource, the options of the verb, the
// form of answer that the client accepts, and where a list goes on. It checks the
// options, those of callers in the process too. It knows neither which resources
// exist nor who is asking.
package request
