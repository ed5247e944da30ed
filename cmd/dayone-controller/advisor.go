package main

// advisorParts forecast, explain and watch what a running Machine Config Operator does. They write policies, requests
// of rebuilds and objects of dayone's own namespace, and nothing else.
func (s *settings) advisorParts() []part {
	return []part{}
}
