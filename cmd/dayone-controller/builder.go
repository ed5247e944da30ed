package main

// builderParts build the images that a running Machine Config Operator rolls out.
func (s *settings) builderParts() []part {
	return []part{}
}
