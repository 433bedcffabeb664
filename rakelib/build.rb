# frozen_string_literal: true

require "etc"
require "rake"
require_relative "../ext/memscope/record_structs"

# Builds in directories that the block may delete: other rakes wait until this one has built there.
def building(directory)
  mkdir_p File.dirname(directory)
  File.open("#{directory}.lock", "a") do |lock|
    lock.flock(File::LOCK_EX)
    yield
  end
end

# Builds an extension in directory and leaves the library at directory/path. A change to any of its sources, or to any
# file in includes, rebuilds the whole extension.
def build_extension(extconf, directory, path, includes: [], environment: {}, make: [], ruby: RbConfig.ruby)
  target = File.join(directory, path)
  building(directory) do
    next if uptodate?(target, FileList["#{File.dirname(extconf)}/**/*.{c,h,def,ld,rb}"] + FieldTables.paths + includes)

    rm_rf directory
    mkdir_p File.dirname(target)
    output = { chdir: directory, out: [File.join(directory, "build.log"), "a"] }
    sh environment, *ruby, File.expand_path(extconf), output
    sh environment, "make", "-j#{Etc.nprocessors}", *make, output
    built = File.join(directory, File.basename(path))
    mv built, target unless built == target
  end
end
