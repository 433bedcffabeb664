# frozen_string_literal: true

require_relative "compiled"

# The allocators of test/fixtures/allocators, built on demand, and where Debian's own are.
module AllocatorFixtures
  JEMALLOC = "libjemalloc.so.2"
  MIMALLOC = File.basename(Dir["/usr/lib/*-linux-*/libmimalloc.so.?"].max || "libmimalloc.so.2")
  TCMALLOC = "libtcmalloc_minimal.so.4"

  # jemalloc's thread-local storage does not fit into the static TLS that glibc reserves for objects loaded later.
  ROOM_FOR_STATIC_TLS = { "GLIBC_TUNABLES" => "glibc.rtld.optional_static_tls=16384" }.freeze

  RENAMED = /\A(?!je_)[a-z_]+\z/
  private_constant :RENAMED

  class << self
    # @return [String] the shared object built from the fixture of that name
    def shared(name, *arguments) = Compiled.shared("allocators/#{name}.c", *arguments)

    # @return [Boolean] whether the dynamic linker finds the library
    def available?(library) = !archive(library).nil?

    # @return [String, nil] the path of Debian's library, static or shared
    def archive(name) = Dir["/usr/lib/*-linux-*/#{name}"].first

    # A real jemalloc under the prefix _rjem_, as Rust's tikv-jemallocator builds it: Debian's archive with its public
    # names changed, and nothing else exported.
    #
    # @return [String] the shared object
    def private_jemalloc
      objects = Compiled.path("private_objects")
      extract(objects) unless File.directory?(objects)
      script = Compiled.path("private_jemalloc.map")
      File.write(script, "{ global: _rjem_*; allocate_privately; local: *; };")
      shared("private_jemalloc", *Dir["#{objects}/*.o"], "-Wl,--version-script=#{script}", "-lm", "-lpthread")
    end

    private

    def extract(objects)
      source = archive("libjemalloc_pic.a")
      Dir.mkdir(objects)
      Compiled.run("ar", "x", source, "--output", objects)
      FileUtils.rm_f(Dir["#{objects}/jemalloc_cpp*.o"])
      names = Compiled.run("nm", "-g", "--defined-only", source).lines.filter_map { |line| line.split[2] }
      renaming = Compiled.path("renaming")
      File.write(renaming, names.grep(RENAMED).uniq.map { |name| "#{name} _rjem_#{name}\n" }.join)
      Dir["#{objects}/*.o"].each { |object| Compiled.run("objcopy", "--redefine-syms=#{renaming}", object) }
    end
  end
end
