# frozen_string_literal: true

module Memscope
  module Launch
    # Numbers the files that a program loads, and charges to each file the allocations while it loads. Allocations
    # of this module itself are charged to memscope.
    module RequireRecorder
      # A file: its number, the number of the file that requires it, the required feature, the path once it is loaded,
      # whether it was loaded (false also if it raised a LoadError; nil if it raised another exception, or is still
      # loading), whether an autoload loads it, and the files that were mapped while it loaded.
      Entry = Struct.new(:number, :parent, :feature, :path, :loaded, :autoloaded, :mapped)
      HOOKS = File.join(__dir__, "require_hooks.rb")

      class << self
        # The entries, in the order in which the files began to load, and the working directory at the start.
        attr_reader :entries, :directory

        # @return [Array<Array(Integer, String)>] calls of `require` for features that were loaded already: the
        #   number of the calling file, and the feature
        def again = @again.keys

        # From now on, allocations are charged to files: require, require_relative, load and autoload call this module.
        #
        # @return [Object, nil] a reason why allocations cannot be charged, or nil if they are
        def start
          @entries = []
          @again = {}
          @autoloads = {}
          @main = Ractor.current
          @directory = Dir.pwd
          @mapped = mapped
          hooks = File.read(HOOKS)
          why = Native.start_owners
          eval(hooks, TOPLEVEL_BINDING, "<internal:memscope/require_hooks>") unless why # rubocop:disable Security/Eval
          why
        end

        # To be called before a file is loaded.
        #
        # @return [Entry, nil] for `leave`. nil if no numbers are left, so that the requiring file stays charged, or in
        #   another Ractor, where nothing is recorded
        def enter(feature)
          return unless Ractor.current.equal?(@main)

          number = Native.new_owner
          return if number == Native::OWNER_OUTSIDE

          parent = Native.own(Native::OWNER_MEMSCOPE)
          entry = Entry.new(number, parent, own_copy(feature))
          entry.autoloaded = @autoloads.key?(feature)
          @entries << entry
          Native.own(entry.number)
          entry
        end

        # Call when the file is loaded, or has raised.
        #
        # @param file [String, nil] the file that load loaded: load appends nothing to $LOADED_FEATURES
        def leave(entry, loaded, file = nil)
          return unless entry

          Native.own(Native::OWNER_MEMSCOPE)
          entry.loaded = loaded.nil? && $!.is_a?(LoadError) ? false : loaded # rubocop:disable Style/SpecialGlobalVars
          @again[[entry.parent, entry.feature]] = true if loaded == false
          finish(entry, file ? located(file) : $LOADED_FEATURES.last) if loaded
        ensure
          Native.own(entry.parent) if entry
        end

        # @raise [LoadError] for code that is in no file, as require_relative does
        def relative(feature, location)
          base = location.absolute_path || location.path
          raise LoadError, "cannot infer basepath" if base.nil? || base.start_with?("(eval")

          File.absolute_path(feature, File.dirname(base))
        end

        # Notes the path of an autoload, except in another Ractor.
        def lazy(path)
          return unless Ractor.current.equal?(@main)

          owner = Native.own(Native::OWNER_MEMSCOPE)
          @autoloads[own_copy(path)] = true
        ensure
          Native.own(owner) if owner
        end

        private

        # A copy with a buffer of its own, so that the program's string can still be freed.
        def own_copy(feature)
          feature = feature.to_path if feature.respond_to?(:to_path)
          return feature unless feature.is_a?(String)

          String.new(capacity: feature.bytesize + 1, encoding: feature.encoding) << feature
        end

        def finish(entry, path)
          entry.path = path
          return unless path.to_s.end_with?(".so")

          now = mapped
          entry.mapped = now - @mapped
          @mapped |= now
        end

        # The path of a file that was loaded: load looks in $LOAD_PATH, then in the working directory.
        def located(file)
          paths = [*$LOAD_PATH, Dir.pwd].map { |directory| File.expand_path(file, directory) }
          paths.find { |path| File.file?(path) } || File.path(file)
        end

        # The files that the process has mapped.
        def mapped = File.read("/proc/self/maps").scan(%r{ (/\S.*)$}).flatten.uniq
      end
    end
  end
end
