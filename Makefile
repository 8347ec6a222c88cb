# make        builds build/motet
# make install PREFIX=DIR   installs what was built, with libraries, man pages, completion and docs; /usr/local without PREFIX
# make demo   sets up, builds, prepares pictures with captions and trains a vision-language model
# make test   sets up, builds and passes every test
.PHONY: all install demo test bench fuzz equality kills format clean

all:
	@tools/setup.sh
	cmake --preset release -DMOTET_TESTS=OFF
	cmake --build --preset release

install: all
	cmake --install build $(if $(PREFIX),--prefix "$(PREFIX)")

demo: all
	examples/demo/run.py

test:
	@tools/setup.sh test
	tests/run.sh

bench: all
	bench/run.sh

# Longer fuzzing than the one inside `make test`.
fuzz:
	@tools/setup.sh test
	tests/fuzz/run.sh

# Hundreds of random ways to run one training against one rank.
equality: all
	MOTET=$(CURDIR)/build/motet TEST_DATA=tests/data tests/mpi/equality.py 0 300

# Some fifty kills of ranks of training runs, at any moment; ten minutes.
kills: all
	MOTET=$(CURDIR)/build/motet TEST_DATA=tests/data tests/mpi/kills.py 0 26

format:
	find src include tests bench examples -name '*.[ch]' -exec clang-format -i {} +

clean:
	rm -rf build build-*
